import { fileHashOf } from "../protocol/file.ts";

/** Deeper than a payload may be. What nests deeper, or in a circle, is refused as JSON. */
const maxDepth = 100;

/** Calls a function with every object within a value that is a reference. */
export function eachReference(value: unknown, call: (part: object, hash: string) => void): void {
  walkObjects(value, (each) => {
    const hash = fileHashOf(each as Parameters<typeof fileHashOf>[0]);
    if (hash !== undefined) call(each, hash);
    return hash !== undefined;
  });
}

/** Walks over objects as JSON would, down to those that `visit` takes. */
export function walkObjects(value: unknown, visit: (each: object) => boolean, depth = 0): void {
  if (typeof value !== "object" || value === null || depth > maxDepth) return;
  if (visit(value)) return;
  if (Array.isArray(value)) {
    for (const each of value) walkObjects(each, visit, depth + 1);
  } else if (isPlain(value)) {
    for (const each of Object.values(value)) walkObjects(each, visit, depth + 1);
  }
}

export function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}
