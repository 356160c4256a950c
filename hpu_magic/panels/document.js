// Draws a Bokeh document of the kernel. A page may be opened at any time. It requests the current
// document and, unless another panel has already loaded it, BokehJS.

let scripts = new Map();

function bokeh(model) {
  const version = model.get("_bokeh");
  if (window.Bokeh?.version === version && window.Bokeh.Widgets) {
    return Promise.resolve();
  }
  if (!scripts.has(version)) {
    scripts.set(version, fetchFrom(model, "script").then(({ script }) => {
      const element = document.createElement("script");
      element.textContent = script;
      document.head.appendChild(element);
      element.remove();
    }));
  }
  return scripts.get(version);
}

// Repeats the request until a reply arrives, because a kernel that is starting a cell may miss one.
function fetchFrom(model, wanted) {
  const request = crypto.randomUUID?.() ?? String(Math.random());
  return new Promise(resolve => {
    const send = () => model.send({ wanted, request });
    const timer = setInterval(send, 3000);
    const receive = reply => {
      if (reply.request === request) {
        clearInterval(timer);
        model.off("msg:custom", receive);
        resolve(reply);
      }
    };
    model.on("msg:custom", receive);
    send();
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
      const { document: json } = await fetchFrom(model, "document");
      if (gone) {
        return;
      }
      const { Document } = window.Bokeh.require("document");
      drawn = Document.from_json(json);
      const { add_document_standalone } = window.Bokeh.require("embed/standalone");
      const [root] = drawn.roots();
      await add_document_standalone(drawn, el, { [root.id]: el });
      const choice = drawn.get_model_by_name("choice");
      choice?.connect(choice.properties.value.change, () => {
        if (choice.value) {
          model.send({ chosen: choice.value });
          choice.value = "";
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
