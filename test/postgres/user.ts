import { execFileSync } from "node:child_process";
import process from "node:process";

export type Unprivileged = { readonly uid: number; readonly gid: number };

/** Postgres refuses to run as root, so it runs as a user who may do nothing. */
export function unprivileged(): Unprivileged | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}
