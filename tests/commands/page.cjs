// Labels rows with the script of a page: node page.cjs PAGE < rows.jsonl > answers.jsonl; a row is a list of one or two texts.
// The first line of the output has the seconds until the model was read, and those of all rows.
const fs = require("fs"), vm = require("vm");
const page = fs.readFileSync(process.argv[2], "utf8");
const part = (id) => new RegExp(`<script type="[a-z/]+" id="${id}">([^<]*)</script>`).exec(page)[1];
const script = /<script>([^]*?)<\/script>/.exec(page)[1];
vm.runInThisContext(script);
const rows = fs.readFileSync(0, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
(async () => {
  const start = process.cpuUsage();
  await vm.runInThisContext("readModel")(JSON.parse(part("about")), part("model"));
  const loaded = process.cpuUsage(start);
  const label = vm.runInThisContext(
    "(row, why) => { const found = read(row), all = decide(found.logits); return { ...all, why: why ? all.given.map((label) => explain(found, label, all.number)) : [] }; }",
  );
  const before = process.cpuUsage();
  const answers = rows.map((row) => label(row, process.argv[3] === "explain" && row[0].length < 1000));
  const after = process.cpuUsage(before);
  const seconds = ({ user, system }) => (user + system) / 1e6;
  const lines = [{ load: seconds(loaded), rows: seconds(after) }, ...answers];
  fs.writeFileSync(1, lines.map((each) => JSON.stringify(each) + "\n").join(""));
})();
