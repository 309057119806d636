/** What a text takes as UTF-8 within JSON, without its quotes. */
export function textBytes(text: string): number {
  let bytes = text.length;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code < 0x20) bytes += 5;
    else if (code === 0x22 || code === 0x5c) bytes += 1;
    else if (code >= 0x800) {
      // Halves of a pair are counted one by one, as two bytes each; one without the other is written
      // as an escape, which takes six.
      if (code < 0xd800 || code > 0xdfff) bytes += 2;
      else if (isPair(text, index)) {
        bytes += 2;
        index++;
      } else bytes += 5;
    } else if (code >= 0x80) bytes += 1;
  }
  return bytes;
}

function isPair(text: string, index: number): boolean {
  const low = text.charCodeAt(index + 1);
  return text.charCodeAt(index) <= 0xdbff && low >= 0xdc00 && low <= 0xdfff;
}

/** What a JSON value takes as UTF-8, at most. Never deeper in calls than one, whatever it is given. */
export function jsonBytes(value: unknown): number {
  let bytes = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === "string") bytes += textBytes(next) + 2;
    else if (typeof next === "number") bytes += 24;
    else if (typeof next === "object" && next !== null) {
      bytes += 2;
      if (Array.isArray(next)) {
        bytes += next.length;
        for (const item of next) left.push(item);
      } else {
        for (const [key, field] of Object.entries(next)) {
          if (field === undefined) continue;
          bytes += textBytes(key) + 4;
          left.push(field);
        }
      }
    } else bytes += 5;
  }
  return bytes;
}
