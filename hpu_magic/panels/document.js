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
    let gone = false;
    const change = message => {
      if (drawn !== null && message.events) {
        drawn.apply_json_patch({ events: message.events });
      }
    };
    model.on("msg:custom", change);
    const show = async () => {
      await bokeh(model);
      const { document: told } = await answered(model, "document");
      if (gone) {
        return;
      }
      const { Document } = window.Bokeh.require("document");
      drawn = Document.from_json(told);
      const { add_document_standalone } = window.Bokeh.require("embed/standalone");
      const [root] = drawn.roots();
      await add_document_standalone(drawn, el, { [root.id]: el });
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
