import type { ReadEntry } from "tar";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";
import { checkLinkTarget, partsOf } from "./paths.ts";

/** What an entry asks for, once it is known to be harmless. */
export type Planned = { readonly parts: readonly string[] } & (
  | { readonly kind: "folder"; readonly mode: number }
  | { readonly kind: "file"; readonly mode: number; readonly bytes: number }
  | { readonly kind: "symlink"; readonly target: string }
  | { readonly kind: "hardlink"; readonly target: readonly string[] }
  /** What lower layers have here is gone. */
  | { readonly kind: "whiteout" }
  /** Everything that lower layers have in this folder is gone. */
  | { readonly kind: "opaque" }
);

/** Counts what an image asks for, across its layers. */
export type Used = { entries: number; bytes: number };

const whiteoutPrefix = ".wh.";
const opaqueName = ".wh..wh..opq";

/** Holds the entries of one layer to the limits and to each other, and writes nothing. */
export function layerChecker(limits: ImageLimits, used: Used): (entry: ReadEntry) => Planned {
  const seen = new Map<string, Planned["kind"]>();
  return (entry) => {
    if (++used.entries > limits.entries) {
      throw new Refused("too_many", `the image has more than ${limits.entries} entries`);
    }
    const planned = planOf(entry, limits);
    if (planned.kind === "file") countBytes(planned.bytes, limits, used);
    const whiteout = planned.kind === "whiteout" || planned.kind === "opaque" ? "\0" : "";
    const path = planned.parts.join("/") + whiteout;
    const before = seen.get(path);
    if (before !== undefined && (before !== "folder" || planned.kind !== "folder")) {
      throw new Refused("duplicate", `the layer has "${entry.path}" twice`);
    }
    for (let depth = 1; depth < planned.parts.length; depth++) {
      const above = planned.parts.slice(0, depth).join("/");
      const kind = seen.get(above);
      if (kind !== undefined && kind !== "folder") {
        throw new Refused("through_link", `"${entry.path}" lies behind "${above}", a ${kind}`);
      }
    }
    seen.set(path, planned.kind);
    return planned;
  };
}

function planOf(entry: ReadEntry, limits: ImageLimits): Planned {
  const { mode = 0o644, linkpath, globalExtended: all } = entry;
  // All but a few kinds are refused, so they aren't listed.
  const type: string = entry.type;
  if (all?.linkpath !== undefined || all?.path !== undefined || all?.size !== undefined) {
    throw new Refused("bad_archive", "a global header names every file");
  }
  const parts = partsOf(entry.path, limits);
  const name = parts.at(-1);
  if (name === undefined && type !== "Directory") {
    throw new Refused("bad_path", `the root is a ${type}`);
  }
  if (name?.startsWith(whiteoutPrefix)) return whiteoutOf(entry, parts);
  switch (type) {
    case "Directory":
      return { kind: "folder", parts, mode };
    case "File":
    case "OldFile":
    case "ContiguousFile":
      return { kind: "file", parts, mode, bytes: entry.size };
    case "SymbolicLink":
      checkNoContent(entry);
      checkLinkTarget(parts, linkpath ?? "", limits);
      return { kind: "symlink", parts, target: linkpath! };
    case "Link":
      checkNoContent(entry);
      return { kind: "hardlink", parts, target: partsOf(linkpath ?? "", limits) };
    default:
      throw new Refused("special_file", `"${entry.path}" is a ${type}`);
  }
}

function whiteoutOf(entry: ReadEntry, parts: readonly string[]): Planned {
  const name = parts.at(-1)!;
  const folder = parts.slice(0, -1);
  const refuse = (why: string) => new Refused("bad_whiteout", `"${entry.path}" ${why}`);
  if (!["File", "OldFile"].includes(entry.type) || entry.size !== 0) throw refuse("isn't empty");
  if (name === opaqueName) return { kind: "opaque", parts: folder };
  const hidden = name.slice(whiteoutPrefix.length);
  if (["", ".", ".."].includes(hidden)) throw refuse("hides no name");
  if (hidden.startsWith(whiteoutPrefix)) throw refuse("is of a kind that isn't known");
  return { kind: "whiteout", parts: [...folder, hidden] };
}

function countBytes(bytes: number, limits: ImageLimits, used: Used): void {
  if (!Number.isSafeInteger(bytes) || bytes > limits.fileBytes) {
    throw new Refused("too_large", `a file has ${bytes} bytes, more than ${limits.fileBytes}`);
  }
  used.bytes += bytes;
  if (used.bytes > limits.unpackedBytes) {
    throw new Refused("too_large", `the image unpacks to more than ${limits.unpackedBytes} bytes`);
  }
}

/** Programs disagree on whether it would be skipped, so that it may hide further entries. */
function checkNoContent({ path, size }: ReadEntry): void {
  if (size !== 0) throw new Refused("bad_archive", `the link "${path}" has content`);
}
