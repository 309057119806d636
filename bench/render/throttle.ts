import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pictureName } from "../throttle/pictures.ts";
import { loadThrottle } from "../throttle/results.ts";
import { pictured } from "../throttle/rounds.ts";
import { tablesOfThrottle } from "../throttle/tables.ts";

const page = fileURLToPath(new URL("../../docs/benchmarks.md", import.meta.url));
const begin = "<!-- figures of throttles: made by `npm run bench -- throttle --save` -->";
const end = "<!-- end of figures of throttles -->";

/** Puts the last full run of the simulator into the documentation. */
export function renderThrottle(): string[] {
  const results = loadThrottle();
  if (!results) return [];
  const text = readFileSync(page, "utf8");
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
  const before = text.slice(0, from + begin.length);
  const pictures = pictured.map(({ name, about }) => `![${name}: ${about}](${pictureName(name)})`);
  const tables = tablesOfThrottle(results);
  writeFileSync(page, `${before}\n\n${pictures.join("\n\n")}\n\n${tables}\n\n${text.slice(to)}`);
  return [page];
}
