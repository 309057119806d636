import { readFileSync } from "node:fs";
import { packageFile } from "../base/package-files.ts";

/** The version of this package. */
export function version(): string {
  const text = readFileSync(packageFile("package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
