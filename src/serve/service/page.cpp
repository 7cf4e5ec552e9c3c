#include "serve/service/documents.hpp"

namespace lockstep::serve {
namespace {

constexpr std::string_view html = R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lockstep serve</title>
<style>
:root { color-scheme: light dark; --bar: #2a6fb0; --line: #8888; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.25rem; margin: 0 0 1rem; }
main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1.5rem; }
@media (max-width: 700px) { main { grid-template-columns: minmax(0, 1fr); } }
label { display: block; margin-bottom: .75rem; }
[hidden] { display: none; }
select, input[type=password] { font: inherit; width: 100%; box-sizing: border-box; padding: .3rem; }
#drop { border: 2px dashed var(--line); border-radius: .5rem; min-height: 12rem; display: grid;
  place-items: center; text-align: center; padding: 1rem; cursor: pointer; }
#drop.over, #drop:focus-within { border-color: var(--bar); }
#drop img { max-width: 100%; max-height: 20rem; }
#drop input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.row { margin-bottom: .5rem; }
.row div { display: flex; justify-content: space-between; gap: 1rem; overflow-wrap: anywhere; }
meter { width: 100%; height: .8rem; }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; overflow-x: auto; }
#error { color: #c22; overflow-wrap: anywhere; }
</style>
<h1>Try a model</h1>
<main>
<section>
<label>Model <select id="model"></select></label>
<label id="secret" hidden>Token <input type="password" id="token" autocomplete="off"></label>
<label id="drop"><input type="file" id="file" accept="image/jpeg,image/png">
<span id="hint">Drop a JPEG or PNG here, or click to choose one</span></label>
</section>
<section aria-live="polite">
<div id="result"></div>
<p id="time"></p>
<p id="error"></p>
</section>
</main>
<p>The same on a command line:</p>
<pre id="curl"></pre>
<script>
"use strict";
const by = id => document.getElementById(id);
const ask = (path, more = {}) => {
  const token = by("token").value;
  const headers = {...more.headers, ...(token && {Authorization: "Bearer " + token})};
  return fetch(path, {...more, headers});
};
const told = async response => {
  const said = await response.json();
  if (response.status == 401) by("secret").hidden = false;
  if (!response.ok) throw new Error(said.error);
  return said;
};
const infer_path = () => "/v2/models/" + by("model").value + "/infer";
const show_command = () => {
  const secret = by("secret").hidden ? "" : "-H 'Authorization: Bearer TOKEN' ";
  by("curl").textContent = "curl " + secret + "-H 'Accept: text/plain' \\\n"
    + "  -H 'Inference-Header-Content-Length: 0' --data-binary @image.jpg \\\n"
    + "  " + location.origin + infer_path();
};
const list_models = async () => {
  try {
    const models = await told(await ask("/v2/repository/index", {method: "POST", body: "{}"}));
    by("model").replaceChildren(...models.map(one => new Option(one.name)));
    by("error").textContent = "";
  } catch (error) {
    by("error").textContent = error.message;
  }
  show_command();
};
const show = (said, ms) => {
  by("result").replaceChildren(...said.map(({name, value, share}) => {
    const row = document.createElement("div"), line = document.createElement("div");
    const left = document.createElement("span"), right = document.createElement("span");
    left.textContent = name;
    right.textContent = share ? (100 * value).toFixed(1) + " %" : value;
    row.className = "row";
    line.append(left, right);
    row.append(line);
    if (share) {
      const bar = document.createElement("meter");
      bar.value = value;
      row.append(bar);
    }
    return row;
  }));
  by("time").textContent = "answered in " + ms.toFixed(0) + " ms";
};
const predict = async file => {
  by("error").textContent = by("time").textContent = "";
  by("result").replaceChildren();
  const picture = new Image();
  picture.alt = file.name;
  picture.src = URL.createObjectURL(file);
  by("hint").replaceChildren(picture);
  const length = new DataView(new ArrayBuffer(4));
  length.setUint32(0, file.size, true);
  const began = performance.now();
  try {
    const model = await told(await ask("/v2/models/" + by("model").value + "/config"));
    const share = model.parameters.task.string_value != "values";
    const json = JSON.stringify({
      inputs: [{name: "image_bytes", datatype: "BYTES", shape: [1],
                parameters: {binary_data_size: file.size + 4}}],
      outputs: [{name: model.output[1].name, ...(share && {parameters: {classification: 5}})}]});
    const answer = await told(await ask(infer_path(), {
      method: "POST", body: new Blob([json, length.buffer, file]),
      headers: {"Inference-Header-Content-Length": new Blob([json]).size}}));
    const data = answer.outputs[0].data;
    const names = JSON.parse(model.parameters.names.string_value);
    const classified = word => {
      const [value, , ...label] = word.split(":");
      return {name: label.join(":"), value, share};
    };
    show(share ? data.map(classified) : names.map((name, k) => ({name, value: data[k], share})),
         performance.now() - began);
  } catch (error) {
    by("error").textContent = error.message;
  }
};
by("file").onchange = () => by("file").files[0] && predict(by("file").files[0]);
by("drop").ondragover = event => { event.preventDefault(); by("drop").classList.add("over"); };
by("drop").ondragleave = () => by("drop").classList.remove("over");
by("drop").ondrop = event => {
  event.preventDefault();
  by("drop").classList.remove("over");
  if (event.dataTransfer.files[0]) predict(event.dataTransfer.files[0]);
};
by("token").onchange = list_models;
by("model").onchange = show_command;
list_models();
</script>
</html>
)page";

}  // namespace

std::string_view page_html() { return html; }

}  // namespace lockstep::serve
