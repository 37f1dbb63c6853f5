// Search of the site without a server. A browser starts no Worker from a file:// address. This
// class runs the script of the worker in a hidden frame of the same page. Written for this site.
"use strict";
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.ready = new Promise(done => {
      const start = () => {
        const inside = this.frame.contentWindow;
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...files) => files.reduce(
          (before, file) => before.then(() => load(inside, file)), Promise.resolve());
        load(inside, url).then(done);
      };
      const load = (inside, file) => new Promise(loaded => {
        const script = inside.document.createElement("script");
        script.src = new URL(file, document.baseURI).href;
        script.onload = script.onerror = loaded;
        inside.document.body.appendChild(script);
      });
      document.body ? (document.body.appendChild(this.frame), start())
        : addEventListener("DOMContentLoaded", () => {
          document.body.appendChild(this.frame);
          start();
        });
    });
  }
  postMessage(data) {
    const message = new MessageEvent("message", { data });
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(message));
  }
  terminate() { this.frame.remove(); }
}
if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
