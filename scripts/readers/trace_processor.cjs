// Runs Perfetto's trace processor, the very one that its viewer runs, in node:
//
//	node trace_processor.cjs DIRECTORY
//
// DIRECTORY holds a release of the viewer. Bytes of TraceProcessorRpcStream come
// on standard input, the answers go to standard output.
const fs = require("node:fs");
const path = require("node:path");

const dir = process.argv[2];
const read = (url) => fs.readFileSync(path.join(dir, path.basename(String(url))));

// The viewer's engine is made for a browser's worker. It gets what a worker has,
// and nothing by which it would take this for anything else.
class XMLHttpRequest {
  open(method, url) { this.url = url; }
  send() { this.response = read(this.url); }
}
const fetch = async (url) => ({ ok: true, arrayBuffer: async () => read(url) });
const self = { location: { href: "http://viewer/engine_bundle.js" } };
console.log = console.error; // standard output is for the answers

const engine = new Function("self", "WorkerGlobalScope", "XMLHttpRequest", "fetch", "process", "require",
  read("engine_bundle.js").toString());
engine(self, Object, XMLHttpRequest, fetch);
const port = {
  postMessage(answer) {
    for (let at = 0; at < answer.length;) at += fs.writeSync(1, answer, at);
  },
};
self.onmessage({ data: port });
process.stdin.on("data", (request) => port.onmessage({ data: new Uint8Array(request) }));
