import { lstat } from "node:fs/promises";
import { relative } from "node:path";
import { listTree } from "../disk/digest.ts";
import { unless } from "../disk/durable.ts";
import { openMetadata } from "./metadata.ts";
import { placesIn } from "./places.ts";

/**
 * Everything that runs have left in a home, line by line: files with their content, links, rights and
 * rows, and no times. Two homes with the same lines were brought to the same state.
 */
export async function fingerprint(home: string): Promise<string[]> {
  const places = placesIn(home);
  const lines: string[] = [];
  for (const folder of [places.blobs, places.images, places.snapshots]) {
    if (!(await lstat(folder).catch(unless("ENOENT")))) continue;
    const name = relative(home, folder);
    lines.push(...(await listTree(folder)).map((line) => `${name}: ${line}`));
  }
  if (!(await lstat(places.metadata).catch(unless("ENOENT")))) return lines;
  using metadata = openMetadata(places.metadata);
  for (const [kind, rows] of Object.entries(metadata.all())) {
    for (const row of rows) lines.push(`${kind}: ${JSON.stringify(row)}`);
  }
  return lines;
}

/** What differs, each line with the side that has it. Nothing, where they are the same. */
export function compare(expected: readonly string[], found: readonly string[]): string[] {
  const missing = expected.filter((line) => !found.includes(line));
  const more = found.filter((line) => !expected.includes(line));
  return [
    ...missing.map((line) => `missing: ${line}`),
    ...more.map((line) => `not expected: ${line}`),
  ];
}
