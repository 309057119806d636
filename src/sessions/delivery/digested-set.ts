import crypto from "node:crypto";

/**
 * A set of strings with a digest of its content, so that two processes can compare their sets without
 * sending them. The digest does not depend on insertion order. It is updated with every change, because
 * there may be as many strings as clients.
 */
export type DigestedSet = Iterable<string> & {
  readonly size: number;
  readonly digest: string;
  has(text: string): boolean;
  add(text: string): void;
  /** False if it was not in the set. */
  delete(text: string): boolean;
};

export function createDigestedSet(): DigestedSet {
  const texts = new Set<string>();
  // The first 128 bits of each string's hash, combined by XOR, so that adding and deleting are the same.
  const combined = new Uint32Array(4);

  const toggle = (text: string): void => {
    const bytes = crypto.hash("sha256", text, "buffer");
    for (let at = 0; at < combined.length; at++) combined[at]! ^= bytes.readUInt32LE(4 * at);
  };

  return {
    get size() {
      return texts.size;
    },
    get digest() {
      return Array.from(combined, (each) => each.toString(16).padStart(8, "0")).join("");
    },
    has: (text) => texts.has(text),
    add(text) {
      if (texts.has(text)) return;
      texts.add(text);
      toggle(text);
    },
    delete(text) {
      const isThere = texts.delete(text);
      if (isThere) toggle(text);
      return isThere;
    },
    [Symbol.iterator]: () => texts.values(),
  };
}
