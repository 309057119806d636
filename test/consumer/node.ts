import { spawnSync } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { fetched } from "./fetched.ts";

const version = "22.18.0";

/** The oldest Node that is supported, from npm, where it is one package per platform. */
export function oldestNode(): { node: string } | { none: string } {
  const name = `node-${process.platform}-${process.arch}`;
  const found = fetched("node", [`${name}@${version}`]);
  if ("none" in found) return found;
  const node = join(found.folder, "node_modules", name, "bin", "node");
  const ran = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (ran.stdout?.trim() === `v${version}`) return { node };
  return { none: `${node} doesn't run here` };
}
