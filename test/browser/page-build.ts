import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { root } from "../../build/entries.ts";
import { built } from "../built.ts";
import { soleOwner } from "../sole-owner.ts";

const chat = ["examples/chat/{index.html,vite.config.ts,src/**}"];
const sources = {
  dashboard: ["src/dashboard/**", "build/dashboard.ts"],
  chat,
  /** The chat as one sees it who develops it: React does everything twice that must be safe to do twice. */
  strict: chat,
  hooks: ["examples/chat/vite.config.ts", "test/browser/hooks/**"],
  assistant: ["examples/chat/vite.config.ts", "test/browser/assistant/**"],
  durable: ["examples/chat/vite.config.ts", "test/browser/durable/**"],
  /** The same with the AI SDK 6. */
  "durable-6": ["examples/chat/vite.config.ts", "test/browser/durable/**"],
};
const shared = [
  "src/{base,client,protocol}/**/*.ts",
  "test/browser/build-page.ts",
  "package-lock.json",
];
const dayMs = 86_400_000;

/** The folder of a page as it is built from the sources of now. One of the same sources is built once. */
export async function builtPage(page: keyof typeof sources): Promise<string> {
  const folder = join(built.folder, "pages", `${page}-${hashOf([...sources[page], ...shared])}`);
  mkdirSync(join(built.folder, "pages"), { recursive: true });
  using building = await soleOwner(`${folder}.lock`, () => isKept(folder));
  if (!building.owned) return folder;
  removeOld(join(built.folder, "pages"));
  const unfinished = `${folder}.${process.pid}`;
  mkdirSync(unfinished, { recursive: true });
  const program = join(import.meta.dirname, "build-page.ts");
  await promisify(execFile)(process.execPath, [program, page, unfinished], { cwd: root });
  renameSync(unfinished, folder);
  return folder;
}

/** Whether it is built already. Then it is in use, so that no other build takes it for an old one. */
function isKept(folder: string): boolean {
  if (!existsSync(folder)) return false;
  const now = new Date();
  utimesSync(folder, now, now);
  return true;
}

/** Pages of sources that are no more. */
function removeOld(folder: string): void {
  for (const path of globSync(join(folder, "*"))) {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found && Date.now() - found.mtimeMs > dayMs) rmSync(path, { recursive: true, force: true });
  }
}

function hashOf(patterns: readonly string[]): string {
  const hash = createHash("sha256");
  for (const path of globSync([...patterns], { cwd: root, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name))
    .sort())
    hash.update(path).update(readFileSync(path));
  return hash.digest("hex").slice(0, 16);
}
