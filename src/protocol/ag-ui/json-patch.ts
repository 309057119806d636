import { isJsonObject, type Json } from "../../base/json.ts";
import { jsonBytes } from "../limits.ts";

type Applied = { readonly value: Json } | { readonly error: string };
type Container = Record<string, Json> | Json[];

const maxOperations = 1_000;
// Assigning to these keys would change more than the object.
const refused = new Set(["__proto__", "constructor", "prototype"]);

/** Says whether a value may still be copied, moved or compared, and takes its bytes from those that are left. */
type Spend = (value: unknown) => boolean;

/**
 * Applies a JSON Patch (RFC 6902), all of it or nothing. The value itself stays as it is. All that its
 * operations copy, move and compare is `maxBytes` at most: a short patch could else double a value many times.
 */
export function applyJsonPatch(
  value: Json,
  patch: unknown,
  { maxBytes }: { maxBytes: number },
): Applied {
  if (!Array.isArray(patch) || patch.length > maxOperations)
    return { error: `sends a change of state that isn't a list of up to ${maxOperations}` };
  // An object around it, so that the whole can be replaced like a part.
  const root: { "": Json } = { "": structuredClone(value) };
  let left = maxBytes;
  const spend: Spend = (each) => (left -= jsonBytes(each)) >= 0;
  for (const operation of patch as unknown[]) {
    const isApplied = isJsonObject(operation) && applyOne(root, operation, spend);
    if (left < 0)
      return { error: `sends a change of state that copies more than ${maxBytes} bytes` };
    if (!isApplied) return { error: "sends a change of state that doesn't fit it" };
  }
  return { value: root[""] };
}

function applyOne(
  root: Container,
  operation: { readonly [field: string]: unknown },
  spend: Spend,
): boolean {
  const { op, value } = operation;
  const path = stepsOf(operation["path"]);
  if (!path) return false;
  if (op === "remove") return take(root, path) !== undefined;
  if (op === "test") {
    const found = at(root, path);
    return spend(found) && JSON.stringify(found) === JSON.stringify(value);
  }
  if (op === "add" || op === "replace") {
    if (value === undefined || !spend(value)) return false;
    const change = op === "add" ? add : replace;
    return change(root, path, structuredClone(value) as Json);
  }
  const from = stepsOf(operation["from"]);
  if (!from || (op !== "move" && op !== "copy")) return false;
  const isInside = from.length < path.length && from.every((step, index) => step === path[index]);
  if (op === "move" && isInside) return false;
  const found = at(root, from);
  if (found === undefined || !spend(found)) return false;
  const put = op === "move" ? take(root, from) : structuredClone(found);
  return put !== undefined && add(root, path, put);
}

/** The steps of a JSON Pointer, after the one to the whole. */
function stepsOf(pointer: unknown): string[] | undefined {
  if (typeof pointer !== "string" || (pointer !== "" && !pointer.startsWith("/"))) return undefined;
  const steps = pointer.split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.some((step) => refused.has(step)) ? undefined : steps;
}

function at(root: Json, path: readonly string[]): Json | undefined {
  let found: Json | undefined = root;
  for (const step of path) found = child(found, step);
  return found;
}

function child(value: Json | undefined, step: string): Json | undefined {
  if (Array.isArray(value)) return value[indexOf(step, value.length - 1)];
  return isJsonObject(value) && Object.hasOwn(value, step) ? (value[step] as Json) : undefined;
}

/** A place in a list, −1 where it isn't one. */
function indexOf(step: string, most: number): number {
  const index = /^(?:0|[1-9]\d{0,8})$/.test(step) ? Number(step) : -1;
  return index <= most ? index : -1;
}

function parentOf(root: Container, path: readonly string[]): Container | undefined {
  const parent = at(root, path.slice(0, -1));
  return typeof parent === "object" && parent !== null ? (parent as Container) : undefined;
}

function add(root: Container, path: readonly string[], value: Json): boolean {
  const parent = parentOf(root, path);
  const last = path.at(-1)!;
  if (!parent) return false;
  if (!Array.isArray(parent)) {
    parent[last] = value;
    return true;
  }
  const index = last === "-" ? parent.length : indexOf(last, parent.length);
  if (index === -1) return false;
  parent.splice(index, 0, value);
  return true;
}

function take(root: Container, path: readonly string[]): Json | undefined {
  const parent = parentOf(root, path);
  const last = path.at(-1)!;
  const found = parent && child(parent, last);
  if (!parent || found === undefined) return undefined;
  if (Array.isArray(parent)) parent.splice(Number(last), 1);
  // The whole has nothing around it to be taken out of.
  else if (path.length === 1) parent[last] = null;
  else delete parent[last];
  return found;
}

function replace(root: Container, path: readonly string[], value: Json): boolean {
  const parent = parentOf(root, path);
  const last = path.at(-1)!;
  if (!parent || child(parent, last) === undefined) return false;
  if (Array.isArray(parent)) parent[Number(last)] = value;
  else parent[last] = value;
  return true;
}
