
const SHOWN = 5, ROWS_AT_ONCE = 500;
let table = [], pairs = false, isOne = false;

const by = (id) => document.getElementById(id);
const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, dir: "auto", ...more });
const tell = (text) => { by("state").textContent = text; };

function answer() { // what strangers wrote is text here, never markup
  const found = read((pairs ? ["first", "second"] : ["first"]).map((id) => by(id).value)), lines = [];
  const { shares, given, text, number } = decide(found.logits);
  const shown = (label) => `${labels[label]}, ${(100 * shares[label]).toFixed(1)} %`;
  const unsure = isOne && shares[given[0]] < by("least").value / 100 ? "unsure: " : "";
  lines.push(make("p", unsure + (isOne ? shown(given[0]) : text || "no label"), { className: "label" }));
  const reasons = given.map((label) => [given[1] >= 0 ? `${labels[label]}: ` : "", explain(found, label, number).join(" | ")]);
  lines.push(...reasons.filter(([, parts]) => parts).map(([name, parts]) => make("p", `${name}decided by ${parts}`)));
  const best = shares ? labels.map((_, label) => label).sort((a, b) => shares[b] - shares[a]).slice(0, SHOWN) : [];
  by("answer").replaceChildren(...lines, make("ol", "")), by("answer").lastChild.append(...best.map((label) => make("li", shown(label))));
}

function cellsOf(text, mark) { // the rows of a CSV, whose cells may be quoted, or of a TSV
  if (mark === "\t") return text.replace(/\r?\n$/, "").split(/\r?\n/).map((line) => line.split("\t"));
  const rows = [[]];
  for (const [, cell, quoted, end] of text.matchAll(/("((?:[^"]|"")*)"|[^,\r\n]*)(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted?.replaceAll('""', '"') ?? cell);
    if (end !== ",") rows.push([]);
  }
  return rows.filter((row) => row.join(""));
}

function show(text, mark, name = "") { // the texts are in the columns that the training names, else in the first ones
  table = cellsOf(text.replace(/^\ufeff/, ""), mark);
  const { text: first, pair } = config.config.source.columns, head = table[0] ?? [""];
  const known = [first, pair].map((own) => head.findIndex((cell) => own.includes(cell)));
  by("header").checked = known[0] >= 0;
  ["column", "column2"].map(by).forEach((select, side) => {
    select.replaceChildren(...head.map((cell, i) => new Option(known[0] >= 0 ? cell : `column ${i + 1}`, i)));
    select.selectedIndex = known[side] >= 0 ? known[side] : Math.min(side, head.length - 1);
  });
  tell(`${name}${table.length.toLocaleString("en")} lines`);
}

const open = async (file) => show(await file.text(), /\.csv$/i.test(file.name) ? "," : "\t", `${file.name}: `);

async function labelAll() {
  const columns = (pairs ? ["column", "column2"] : ["column"]).map((id) => by(id).value), least = by("least").value, lines = [];
  const rows = by("header").checked ? table.slice(1) : table, count = rows.length.toLocaleString("en");
  const push = (cells) => lines.push(cells.map((cell) => cell.replace(/[\t\r\n]+/g, " ")).join("\t"));
  if (rows !== table) push([...table[0], "prediction", ...(isOne ? ["score", "reason"] : [])]);
  by("start").disabled = true; // until all are labelled
  for (const [i, row] of rows.entries()) {
    const { shares, given, text } = decide(read(columns.map((column) => row[column] ?? "")).logits), share = shares?.[given[0]];
    push([...row, text, ...(isOne ? [share.toFixed(6), share < least / 100 ? `unsure: below ${least} %` : ""] : [])]);
    if (i % ROWS_AT_ONCE === 0) tell(`${i.toLocaleString("en")} of ${count} rows`), await new Promise((resolve) => setTimeout(resolve));
  }
  by("labelled").value = lines.join("\n") + "\n", by("labelled").hidden = by("save").hidden = by("start").disabled = false;
  by("save").href = URL.createObjectURL(new Blob([by("labelled").value], { type: "text/tab-separated-values" }));
  tell(`labelled: ${count}`);
}

async function openPage() {
  await readModel(JSON.parse(by("about").textContent), by("model").textContent);
  pairs = config.config.source.columns.pair.length > 0, isOne = config.config.target.kind === "one";
  by("pair").hidden = by("other").hidden = !pairs, by("unsure").hidden = !isOne;
  for (const id of ["first", "second", "least"]) by(id).addEventListener("input", answer);
  by("rows").addEventListener("input", () => show(by("rows").value, "\t"));
  by("file").addEventListener("change", ({ target }) => open(target.files[0]));
  by("start").addEventListener("click", labelAll);
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => { event.preventDefault(), open(event.dataTransfer.files[0]); });
}

if (typeof document !== "undefined") openPage();
