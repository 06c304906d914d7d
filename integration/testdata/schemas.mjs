// Prints valid and invalid JSON Schemas, each with the information whether the npm SDK's validator compiles it, as lines
// {"schema": text, "compiles": bool, "error": text}.
//   schemas.mjs NUMBER SEED        schemas of an object that contain generated schemas
//   schemas.mjs NUMBER SEED roots  generated schemas of any type
//   schemas.mjs check              the schemas on stdin, one per line
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";
import { createInterface } from "node:readline";

console.warn = console.error = () => {};
function print(text) {
  let error = "";
  try { new AjvJsonSchemaValidator().getValidator(JSON.parse(text)); } catch (e) { error = String(e.message); }
  console.log(JSON.stringify({ schema: text, compiles: error === "", error }));
}
if (process.argv[2] === "check") {
  for await (const text of createInterface({ input: process.stdin })) print(text);
  await new Promise((written) => process.stdout.write("", written)); // exit would discard output that is not in the pipe yet
  process.exit(0);
}
let state = Number(process.argv[3]) | 0;
function random() { // mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const number = (n) => Math.floor(random() * n);
const pick = (list) => list[number(list.length)];
const junk = () => pick([null, true, false, 0, 5, -1.5, "", "x", [], ["x"], [5], [null], {}, { a: 5 },
  { type: "string" }, { type: "strin" }]);

const refs = ["#", "#/", "", "#/$defs/a", "#/$defs/b", "#/definitions/c", "#/$defs/nope", "#a", "#nope", "x.json",
  "http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema", "#/properties/p",
  "#/properties/p/type", "#/$defs",
  "#/$defs/a/allOf/0", "#/$defs/a/allOf/01", "#/$defs/a%2Fb", "#/$defs/%61", "#/$defs/a~1b", "#/$defs/%zz", "#/x",
  "#/x/y", "#$defs/a",
  "##", "#/#", "#/$defs/a#", "#/$defs/b#/", "#/$defs/0", "#/x/0", "#/x/1"];
const inherited = ["constructor", "hasOwnProperty", "toString", "valueOf", "__lookupGetter__"];
const pieces = ["a", "b", "1", "(", ")", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<n>", "(?<m>", "[", "]", "[^", "{",
  "}", "{2}", "{2,}", "{2,3}", "{3,2}",
  "{,2}", "*", "+", "?", "*?", "|", "^", "$", ".", "\\d", "\\w", "\\b", "\\B", "\\1", "\\2", "\\0", "\\k<n>", "\\k",
  "\\-", "-", "\\.", "\\/", "/",
  "\\_", "\\u0041", "\\u{41}", "\\u{110000}", "\\u{", "\\ud83d", "\\ude00", "\\x41", "\\x4", "\\cA", "\\c", "\\p{L}",
  "\\p{gc=Nd}", "\\p{Letter}",
  "\\p{Script=Latin}", "\\p{sc=Grek}", "\\p{Emoji}", "\\P{ASCII}", "\\pL", "\\p{", "😀", "é", ",", "=", "!", "<", ">",
  ":", "\\]", "\\[", "\\\\",
  "\\t", "\\A", "\\Z", "\\e", "\\ ", "(?P<x>", "(?<é>", "(?<1>"];
const pattern = () => random() < 0.6 ? pick(["a", "^b$"]) : Array.from({ length: 1 + number(5) },
  () => pick(pieces)).join("");

function schema(depth) {
  if (random() < 0.06) return junk();
  if (random() < 0.05) return pick([true, false]);
  const one = () => depth <= 0 ? pick([{}, { type: "string" }, true]) : schema(depth - 1);
  const some = (most) => Array.from({ length: 1 + number(most) }, one);
  const map = (names) => Object.fromEntries(Array.from({ length: 1 + number(3) }, () => [names(), one()]));
  const keywords = {
    type: () => pick(["string", "object", "array", "number", ["string", "null"], ["null"], [], "", "foo"]),
    properties: () => map(() => pick(["p", "q", "$ref", "$id"])), patternProperties: () => map(pattern),
    $defs: () => map(() => pick(["a", "b"])), definitions: () => map(() => "c"),
    dependencies: () => random() < 0.3 ? { a: ["x"] } : map(() => "a"),
    anyOf: () => some(3), oneOf: () => some(3), allOf: () => some(3), items: () => random() < 0.3 ? some(2) : one(),
    not: one, if: one, then: one, else: one, propertyNames: one, contains: one, additionalProperties: one,
    additionalItems: one, x: () => random() < 0.3 ? some(2) : one(),
    $ref: () => pick(refs), pattern, required: () => ["p"], enum: () => pick([[1], ["a", null]]), const: junk,
    title: junk, prefixItems: junk,
    format: () => pick(["date", "nope", "email", "int32", "password"]), formatMinimum: () => "2026-01-01",
    formatExclusiveMaximum: () => "a", $async: () => pick([true, false, 0]), minimum: () => 5, maxLength: () => 5, exclusiveMinimum: () => 5,
    uniqueItems: () => true,
    nullable: () => pick([true, false]), $anchor: () => pick(["a", "b", "c", "d", "1"]),
    $dynamicAnchor: () => pick(["e", "f"]), $comment: junk,
  };
  const made = {};
  for (let n = number(3); n >= 0; n--) {
    if (random() < 0.05) {
      made[pick(inherited)] = pick([junk, one, () => some(2), () => map(() => "a")])();
      continue;
    }
    const keyword = random() < 0.1 ? "$ref" : random() < 0.01 ? "id" : pick(Object.keys(keywords));
    made[keyword] = random() < 0.04 || !keywords[keyword] ? junk() : keywords[keyword]();
    if (keyword === "nullable" && random() < 0.6) made.type = "string";
    if (keyword.startsWith("format") && random() < 0.7) made.format = keywords.format();
  }
  return made;
}
for (let n = Number(process.argv[2]); n > 0; n--) {
  const $defs = { a: schema(2), b: schema(1), "a/b": schema(1) };
  print(JSON.stringify(process.argv[4] === "roots" ? { $defs, ...schema(3) } :
    { type: "object", properties: { p: { allOf: [schema(3), schema(2)] } }, $defs, x: schema(1) }));
}
