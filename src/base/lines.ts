export type LinesOptions = {
  readonly maxLineBytes: number;
  /** Whether a carriage return ends a line too, alone or before a line feed. */
  readonly returns: boolean;
};

/** The text of a line, or undefined in place of a line that is longer than the limit. */
export type Lines<Text> = {
  /** Returns the complete lines. `tooLong` is true if the unfinished one exceeds the limit already. */
  push(bytes: Uint8Array): { lines: (Text | undefined)[]; tooLong: boolean };
  /** The last line, if no line end followed. */
  end(): (Text | undefined)[];
};

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Splits bytes into lines of text, in whatever chunks they arrive. Lines are split as bytes and
 * decoded when they are complete, so that no character is decoded in halves. The bytes of a line that
 * is too long are dropped, and the lines after it are read.
 */
export function createLines(options: LinesOptions): Lines<string>;
export function createLines<Text>(
  options: LinesOptions & { readonly decode: (bytes: Uint8Array) => Text },
): Lines<Text>;
export function createLines({
  maxLineBytes,
  returns,
  decode = createDecoder(),
}: LinesOptions & { readonly decode?: (bytes: Uint8Array) => unknown }): Lines<unknown> {
  let held = new Uint8Array(256);
  /** The bytes of the unfinished line. Not all of them are held if there are too many. */
  let length = 0;
  let afterReturn = false;

  /**
   * Keeps bytes until their line ends. The buffer doubles, so each byte is moved only a few times.
   */
  function hold(bytes: Uint8Array): void {
    const size = length + bytes.length;
    if (size <= maxLineBytes) {
      if (size > held.length) {
        const larger = new Uint8Array(Math.max(held.length * 2, size));
        larger.set(held.subarray(0, length));
        held = larger;
      }
      held.set(bytes, length);
    }
    length = size;
  }

  function lineOf(rest: Uint8Array): unknown {
    const begun = length;
    if (begun > 0) hold(rest);
    const size = begun + rest.length;
    length = 0;
    if (size > maxLineBytes) return undefined;
    return decode(begun > 0 ? held.subarray(0, size) : rest);
  }

  function endOfLine(bytes: Uint8Array, start: number): number {
    const feed = bytes.indexOf(lineFeed, start);
    if (!returns) return feed;
    const end = bytes.subarray(start, feed < 0 ? bytes.length : feed).indexOf(carriageReturn);
    return end < 0 ? feed : start + end;
  }

  return {
    push(bytes) {
      const lines: unknown[] = [];
      let start = afterReturn && bytes[0] === lineFeed ? 1 : 0;
      if (bytes.length > 0) afterReturn = false;
      for (let end: number; (end = endOfLine(bytes, start)) >= 0;) {
        lines.push(lineOf(bytes.subarray(start, end)));
        start = end + 1;
        if (bytes[end] !== carriageReturn) continue;
        if (start === bytes.length) afterReturn = true;
        else if (bytes[start] === lineFeed) start++;
      }
      hold(bytes.subarray(start));
      return { lines, tooLong: length > maxLineBytes };
    },
    end: () => (length === 0 ? [] : [lineOf(new Uint8Array())]),
  };
}

/** A byte order mark may begin the first line. In later ones it is text. */
function createDecoder(): (bytes: Uint8Array) => string {
  const later = new TextDecoder("utf-8", { ignoreBOM: true });
  let decoder = new TextDecoder();
  return (bytes) => {
    const text = decoder.decode(bytes);
    decoder = later;
    return text;
  };
}
