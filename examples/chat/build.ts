// Builds the page, if anything that it is made of has changed since the last time.
import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";

const root = join(import.meta.dirname, "../..");
const stamp = join(import.meta.dirname, "dist/.built");
const sources = [
  "examples/chat/{index.html,vite.config.ts,src/**}",
  "src/{base,client,protocol}/**/*.ts",
  "package-lock.json",
];

const hash = createHash("sha256");
for (const path of globSync(sources, { cwd: root, withFileTypes: true })
  .filter((each) => each.isFile())
  .map((each) => join(each.parentPath, each.name))
  .sort())
  hash.update(path).update(readFileSync(path));
const wanted = hash.digest("hex");

if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== wanted) {
  await build({ configFile: join(import.meta.dirname, "vite.config.ts"), logLevel: "error" });
  writeFileSync(stamp, wanted);
}
