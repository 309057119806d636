import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";

/** A path of an archive as its parts, which hold no surprises. The root has none. */
export function partsOf(path: string, limits: ImageLimits): string[] {
  const shown = JSON.stringify(path.slice(0, 200));
  const refuse = (why: string) => new Refused("bad_path", `the path ${shown} ${why}`);
  if (path === "") throw refuse("is empty");
  if (Buffer.byteLength(path) > limits.pathBytes) throw refuse("is too long");
  if (path.startsWith("/")) throw new Refused("escape", `the path ${shown} is absolute`);
  // Bytes that aren't text come as U+FFFD, and two names that differ would become one.
  if (/[\p{Cc}\ufffd]/u.test(path)) throw refuse("has characters that names don't have");
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) throw new Refused("escape", `the path ${shown} leads upwards`);
  if (parts.length > limits.depth) throw refuse("is too deep");
  if (parts.some((part) => Buffer.byteLength(part) > limits.nameBytes)) {
    throw refuse("has a name that is too long");
  }
  return parts;
}

/**
 * Where a symbolic link at `parts` may point to: upwards only at the beginning, and no further than to
 * the root. A link never lies behind another link, so its own place is what it seems; and with every
 * link held to this, following any number of them stays inside. `..` after a name would not: the name
 * may be a link that leads upwards already.
 */
export function checkLinkTarget(
  parts: readonly string[],
  target: string,
  limits: ImageLimits,
): void {
  const shown = JSON.stringify(target.slice(0, 200));
  const refuse = (why: string) =>
    new Refused("escape", `the link "${parts.join("/")}" to ${shown} ${why}`);
  if (target === "" || Buffer.byteLength(target) > limits.pathBytes) throw refuse("has no target");
  if (target.startsWith("/")) throw refuse("is absolute");
  if (/[\p{Cc}\ufffd]/u.test(target)) {
    throw refuse("has characters that names don't have");
  }
  const steps = target.split("/").filter((part) => part !== "" && part !== ".");
  const names = steps.findIndex((step) => step !== "..");
  const upwards = names === -1 ? steps.length : names;
  if (steps.slice(upwards).includes("..")) throw refuse("leads upwards behind a name");
  if (upwards > parts.length - 1) throw refuse("leads out of the root");
}
