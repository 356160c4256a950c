// Draws a Bokeh document that lives in the kernel. A page may open at any time: it asks for
// BokehJS, unless another panel has brought it, and for the document as it is at that moment.

let scripts = new Map();

function bokeh(model) {
  const version = model.get("_bokeh");
  if (window.Bokeh?.version === version && window.Bokeh.Widgets) {
    return Promise.resolve();
  }
  if (!scripts.has(version)) {
    scripts.set(version, answered(model, "script").then(({ script }) => {
      const element = document.createElement("script");
      element.textContent = script;
      document.head.appendChild(element);
      element.remove();
    }));
  }
  return scripts.get(version);
}

// Asks again until an answer comes: a kernel that is just starting a cell may miss a question.
function answered(model, wanted) {
  const question = crypto.randomUUID?.() ?? String(Math.random());
  return new Promise(resolve => {
    const ask = () => model.send({ wanted, question });
    const again = setInterval(ask, 3000);
    const hear = answer => {
      if (answer.question === question) {
        clearInterval(again);
        model.off("msg:custom", hear);
        resolve(answer);
      }
    };
    model.on("msg:custom", hear);
    ask();
  });
}

export default {
  async render({ model, el }) {
    let drawn = null;
    let views = null;
    let gone = false;
    let redrawing;
    const change = message => {
      if (drawn === null || !message.events) {
        return;
      }
      drawn.apply_json_patch({ events: message.events });
      // A legend that is already drawn takes no samples of curves that come later.
      if (message.events.some(event => event.attr === "items")) {
        clearTimeout(redrawing);
        redrawing = setTimeout(() => void draw(), 100);
      }
    };
    model.on("msg:custom", change);
    const draw = async () => {
      if (gone) {
        return;
      }
      const { add_document_standalone } = window.Bokeh.require("embed/standalone");
      el.style.minHeight = `${el.offsetHeight}px`; // what follows stays where it is
      views?.clear();
      drawn.views_manager = null;
      const [root] = drawn.roots();
      views = await add_document_standalone(drawn, el, { [root.id]: el });
    };
    const show = async () => {
      await bokeh(model);
      const { document: told } = await answered(model, "document");
      if (gone) {
        return;
      }
      const { Document } = window.Bokeh.require("document");
      drawn = Document.from_json(told);
      await draw();
      const heard = drawn.get_model_by_name("heard");
      heard?.connect(heard.properties.value.change, () => {
        if (heard.value) {
          model.send({ chosen: heard.value });
          heard.value = "";
        }
      });
    };
    show().catch(error => {
      el.textContent = `The charts cannot be drawn: ${error}`;
    });
    return () => {
      gone = true;
      model.off("msg:custom", change);
      drawn?.clear();
    };
  }
};
