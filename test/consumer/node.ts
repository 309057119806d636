import { spawnSync } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { fetched } from "./fetched.ts";

/** The oldest Node that is supported. */
export const oldestNode = (): string => nodeOf("22.18.0");

export function nodeOf(version: string): string {
  const found = fetchNode(version);
  if ("none" in found) throw new Error(`there is no Node ${version} to run it on: ${found.none}`);
  return found.node;
}

/** From npm, where it is one package per platform. */
function fetchNode(version: string): { node: string } | { none: string } {
  const name = `node-${process.platform}-${process.arch}`;
  const found = fetched("node", [`${name}@${version}`]);
  if ("none" in found) return found;
  const node = join(found.folder, "node_modules", name, "bin", "node");
  const ran = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (ran.stdout?.trim() === `v${version}`) return { node };
  return { none: `${node} doesn't run here` };
}
