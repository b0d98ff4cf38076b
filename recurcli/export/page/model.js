"use strict";
// The linear model of a page. It counts n-grams as recurcli/linear/ngram_hashes.py, weighs them as linear/ngrams.py, explains
// as linear/explain.py and decides as recurcli/targets. A text is an array of code points; a number of 64 bits has two halves.

const MAX_TEXT = 65536, MIN_SHARE = 0.25, MOST = 5;
const SPACE = 1, WORD = 2, MARK = 3, OTHER = 4, KIND = 7, CASED = 8, IGNORED = 16; // properties of characters
const PRIME = [0x9e3779b9, 0x7f4a7c15], SIDES = ["first", "second", "both"];
const SIDE_MARKS = [[0x3c6ef372, 0xfe94f82b], [0xbb67ae85, 0x84caa73b], [0xa54ff53a, 0x5f1d36f1]];
const HIGH = 0, LOW = 1, hash = new Uint32Array(2); // the result of the arithmetic
let config, labels, width, stored, starts, weights, properties, lower;
let highs, lows, begins, ends, values, times, known = []; // hash and place of each n-gram of a row; of the `known` ones the values

async function readModel(about, content) {
  config = about, labels = Object.values(about.config.id2label), width = labels.length, stored = {};
  const text = atob(content), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const kinds = { U32: Uint32Array, F32: Float32Array, U16: Uint16Array, I16: Int16Array, I8: Int8Array, U8: Uint8Array };
  const first = 8 + new DataView(buffer).getUint32(0, true), head = new TextDecoder().decode(buffer.slice(8, first));
  for (const [name, { dtype, shape, data_offsets: [start] }] of Object.entries(JSON.parse(head))) // a safetensors file
    stored[name] = new kinds[dtype](buffer, first + start, shape.reduce((a, b) => a * b));
  starts = new Uint32Array(stored.counts.length + 1), weights = new Float32Array(stored.weights);
  stored.counts.forEach((count, bucket) => { starts[bucket + 1] = starts[bucket] + count; });
  values = new Float32Array(stored.rest.length), times = new Uint32Array(stored.rest.length);
  for (let i = 0; i < weights.length; i++) weights[i] *= stored.scales[i % width];
  properties = new Uint8Array(0x110000), lower = new Uint32Array(0x110000);
  stored.starts.forEach((start, run) => properties.fill(stored.properties[run], start, stored.starts[run + 1]));
  stored.upper.forEach((code, i) => { lower[code] = stored.lower[i]; }); // 0: itself
}

function multiply(aHigh, aLow, bHigh, bLow) { // by halves of 16 bits
  const a0 = aLow & 65535, a1 = aLow >>> 16, b0 = bLow & 65535, b1 = bLow >>> 16;
  const p0 = Math.imul(a0, b0) >>> 0, p1 = a1 * b0 + (p0 >>> 16), p2 = a0 * b1 + (p1 & 65535);
  hash[LOW] = p2 << 16 | p0 & 65535;
  hash[HIGH] = Math.imul(a1, b1) + (p1 >>> 16) + (p2 >>> 16) + Math.imul(aHigh, bLow) + Math.imul(aLow, bHigh);
}

const add = (high, low) => { hash[HIGH] += high + (hash[LOW] + low > 0xffffffff ? 1 : 0), hash[LOW] += low; };
const shift = (bits) => { hash[LOW] ^= hash[LOW] >>> bits | hash[HIGH] << 32 - bits, hash[HIGH] ^= hash[HIGH] >>> bits; };

function mix() {
  shift(30), multiply(hash[HIGH], hash[LOW], 0xbf58476d, 0x1ce4e5b9);
  shift(27), multiply(hash[HIGH], hash[LOW], 0x94d049bb, 0x133111eb), shift(31);
}

const codePoints = (text) => Array.from(text, (character) => character.codePointAt(0)).slice(0, MAX_TEXT);
const textOf = (codes) => codes.map((code) => String.fromCodePoint(code)).join("");

function isBesideCased(codes, place, step) {
  do place += step; while (properties[codes[place]] & IGNORED);
  return properties[codes[place]] & CASED;
}

function lowered(codes) {
  const small = [];
  for (let place = 0; place < codes.length; place++)
    if (codes[place] === 0x130) small.push(0x69, 0x307); // İ
    else if (codes[place] !== 0x3a3) small.push(lower[codes[place]] || codes[place]);
    else small.push(isBesideCased(codes, place, -1) && !isBesideCased(codes, place, 1) ? 0x3c2 : 0x3c3); // Σ
  return small;
}

function wordSpans(codes) { // [start, end] of each word or punctuation mark, with its combining marks
  const spans = [];
  let base = SPACE;
  for (let place = 0; place < codes.length; place++) {
    const kind = properties[codes[place]] & KIND;
    if (kind >= OTHER || (kind === WORD && base !== WORD) || (kind === MARK && spans.at(-1)?.[1] !== place)) spans.push([place, place]);
    if (kind !== SPACE) spans[spans.length - 1][1] = place + 1;
    if (kind !== MARK) base = kind;
  }
  return spans;
}

const everySpan = (codes) => codes.map((_, place) => [place, place + 1]);

function spacedSpans(codes) { // of the characters of words, and an empty one for the space before each word and after the last
  const spans = [], isSpace = (place) => (properties[codes[place]] & KIND) === SPACE;
  for (let place = 0; place < codes.length; place++) {
    if (isSpace(place)) continue;
    if (place === 0 || isSpace(place - 1)) spans.push([place, place]);
    spans.push([place, place + 1]);
  }
  return spans.length ? [...spans, [spans.at(-1)[1], spans.at(-1)[1]]] : spans;
}

function hashText(codes) {
  const { characters, words, across_words: across } = config.ngrams;
  if (characters[1]) {
    const spans = (across ? everySpan : spacedSpans)(codes), units = spans.map(([start, end]) => start < end ? codes[start] : 32);
    hashWindows(spans, new Uint32Array(units.length), units, characters, across ? 0 : 2);
  }
  const spans = words[1] ? wordSpans(codes) : [], units = [new Uint32Array(spans.length), new Uint32Array(spans.length)];
  spans.forEach(([start, end], word) => { // the sum of (code + 1) PRIME^(1 + place in the word)
    hash.fill(0);
    for (let place = end - 1; place >= start; place--) add(0, codes[place] + 1), multiply(hash[HIGH], hash[LOW], PRIME[HIGH], PRIME[LOW]);
    mix(), units[HIGH][word] = hash[HIGH], units[LOW][word] = hash[LOW];
  });
  hashWindows(spans, ...units, words, 1);
}

function hashWindows(spans, unitHighs, unitLows, [shortest, longest], kind) {
  for (let first = 0; first < spans.length; first++) {
    let high = 0, low = 0;
    for (let last = first; last < Math.min(first + longest, spans.length); last++) {
      if (kind === 2 && last - 1 > first && unitLows[last - 1] === 32) break; // a space is first or last
      multiply(high, low, PRIME[HIGH], PRIME[LOW]), add(unitHighs[last], unitLows[last]), add(0, 1);
      high = hash[HIGH], low = hash[LOW];
      if (last - first + 1 >= shortest) add(0, (kind << 8) + last - first + 1), mix(); else continue;
      highs.push(hash[HIGH]), lows.push((hash[LOW] & ~1 | kind & 1) >>> 0), begins.push(spans[first][0]), ends.push(spans[last][1]);
    }
  }
}

function markSides(second) { // an n-gram of a pair is in the first text, in the second one (those from `second` on) or in both
  const sides = new Map(), keyOf = (i) => highs[i] * 2 ** 21 + (lows[i] >>> 11);
  lows.forEach((_, i) => sides.set(keyOf(i), sides.get(keyOf(i)) | (i < second ? 1 : 2)));
  lows.forEach((own, i) => {
    hash.set([highs[i], own]), add(...SIDE_MARKS[sides.get(keyOf(i)) - 1]), mix();
    highs[i] = hash[HIGH], lows[i] = (hash[LOW] & ~1 | own & 1) >>> 0;
  });
}

function columnOf(high, low) { // the place of an n-gram in the vocabulary, or -1
  const bucket = (low & 1) << 16 | high >>> 16, wanted = (high << 16 | low >>> 16) >>> 0, { rest } = stored;
  for (let place = starts[bucket]; place < starts[bucket + 1]; place++) if (rest[place] === wanted) return place;
  return -1;
}

function read(row) { // [text] or [first, second]: the logits, and what explains them
  for (const column of known) times[column] = 0;
  highs = [], lows = [], begins = [], ends = [], known = [];
  const texts = row.map(codePoints), small = texts.map(lowered), norms = [0, 0], { idf, records } = stored;
  hashText(small[0]);
  const second = lows.length, columns = [], logits = [...stored.bias], kindOf = (column) => column < starts[65536] ? 0 : 1;
  if (row.length > 1) hashText(small[1]), markSides(second);
  for (let i = 0; i < lows.length; i++) {
    const column = columnOf(highs[i], lows[i]);
    columns.push(column);
    if (column >= 0 && times[column]++ === 0) known.push(column);
  }
  for (const column of known) {
    values[column] = Math.fround(1 + Math.log(times[column])) * idf[records[column]];
    norms[kindOf(column)] += values[column] * values[column];
  }
  for (const column of known) {
    const value = values[column] /= Math.sqrt(norms[kindOf(column)]), first = records[column] * width;
    for (let label = 0; label < width; label++) logits[label] += value * weights[first + label];
  }
  return { texts, small, second, columns, logits };
}

function decide(logits) { // the shares of the labels, the numbers of those that are given, and the prediction as a table has it
  const { slopes, offsets, least, thresholds, config: { target } } = config, best = (list) => list.indexOf(Math.max(...list));
  const scaled = logits.map((logit, label) => slopes[label] * logit + offsets[label]);
  if (target.kind === "number") {
    const number = Math.min(Math.max(target.mean + target.std * scaled[0], target.low), target.high);
    const text = number.toFixed(Math.max(0, 5 - Math.floor(Math.log10(target.std))));
    return { given: [0], number, text: (text.includes(".") ? text.replace(/\.?0+$/, "") : text).replace(/^-0$/, "0") };
  }
  const isOne = target.kind === "one", bounds = thresholds ?? scaled.map(() => isOne ? 1 : 0.5), largest = Math.max(...scaled);
  const powers = scaled.map((logit) => Math.exp(logit - largest)), sum = powers.reduce((a, b) => a + b);
  const chances = isOne ? powers.map((power) => power / sum) : scaled.map((logit) => 1 / (1 + Math.exp(-logit)));
  const shares = chances.map((chance) => (1 - (isOne ? width : 2) * least) * chance + least);
  let given = isOne ? [] : config.order.filter((label) => shares[label] >= bounds[label]);
  if (isOne || (!given.length && target.at_least_one))
    given = [best(shares.map((share, label) => share / Math.max(bounds[label], 1e-12)))];
  return { shares, given, text: given.map((label) => labels[label]).join(target.separator) };
}

function explain({ texts, small, second, columns, logits }, label, number) { // the parts with the largest share in its logit
  const { target } = config.config, others = logits.map((logit, other) => other === label ? -Infinity : logit), parts = new Map();
  const sign = number === undefined ? 1 : Math.sign(number - target.mean), next = others.indexOf(Math.max(...others));
  const sides = small.map((codes) => {
    const units = (config.ngrams.words[1] ? wordSpans : everySpan)(codes), shares = new Float64Array(units.length);
    const until = new Uint32Array(codes.length + 1), from = until.slice(); // units that begin, and that end, before a place
    units.forEach(([start, end]) => { until[start + 1]++, from[end]++; });
    for (let i = 1; i <= codes.length; i++) until[i] += until[i - 1], from[i] += from[i - 1];
    return { codes, units, until, from, shares };
  });
  columns.forEach((column, i) => {
    if (column < 0) return;
    const { until, from, shares } = sides[i < second ? 0 : 1], first = from[begins[i]], end = until[ends[i]];
    const row = stored.records[column] * width, weight = weights[row + label] - (target.kind === "one" ? weights[row + next] : 0);
    for (let unit = first; unit < end; unit++) shares[unit] += sign * weight * values[column] / times[column] / (end - first);
  });
  const least = MIN_SHARE * sides.reduce((most, { shares }) => shares.reduce((a, b) => Math.max(a, b), most), 0);
  sides.forEach(({ codes, units, shares }, side) => {
    const isWord = (code) => ![SPACE, OTHER].includes(properties[code] & KIND); // or a symbol
    const isNamed = (unit) => least > 0 && shares[unit] >= least && codes.slice(...units[unit]).every(isWord);
    for (let unit = 0; unit < units.length; unit++) {
      if (!isNamed(unit)) continue;
      const start = units[unit][0];
      let share = 0;
      do share += shares[unit]; while (isNamed(++unit)); // neighbours are one part
      const end = units[unit - 1][1], part = textOf(codes.slice(start, end));
      const before = parts.get(part) ?? { share: 0, side, start, end };
      parts.set(part, { ...before, share: before.share + share, last: side });
    }
  });
  return [...parts].sort(([, a], [, b]) => b.share - a.share).slice(0, MOST).map(([part, { side, last, start, end }]) => {
    const spelled = texts[side].slice(start, end), shown = textOf(lowered(spelled)) === part ? textOf(spelled) : part;
    return texts.length > 1 ? `${SIDES[side === last ? side : 2]}: ${shown}` : shown;
  });
}
