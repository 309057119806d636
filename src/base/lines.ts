export type LinesOptions = {
  readonly maxLineBytes: number;
  /** Whether a carriage return ends a line too, alone or before a line feed. */
  readonly returns: boolean;
};

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Splits bytes into lines of text, in whatever chunks they arrive. Lines are split as bytes and
 * decoded when they are complete, so that no character is decoded in halves.
 */
export function createLines({ maxLineBytes, returns }: LinesOptions) {
  const decoder = new TextDecoder();
  let held = new Uint8Array(256);
  let length = 0;
  let afterReturn = false;
  let first = true;

  /**
   * Keeps bytes until their line ends. The buffer doubles, so each byte is moved only a few times.
   */
  function hold(bytes: Uint8Array): void {
    if (length + bytes.length > held.length) {
      const larger = new Uint8Array(Math.max(held.length * 2, length + bytes.length));
      larger.set(held.subarray(0, length));
      held = larger;
    }
    held.set(bytes, length);
    length += bytes.length;
  }

  function text(bytes: Uint8Array): string {
    // A byte order mark may begin the first line, and the decoder would remove it from every line.
    const line = first ? decoder.decode(bytes) : keeping.decode(bytes);
    first = false;
    return line;
  }
  const keeping = new TextDecoder("utf-8", { ignoreBOM: true });

  function lineOf(rest: Uint8Array): string {
    if (length === 0) return text(rest);
    hold(rest);
    const line = text(held.subarray(0, length));
    length = 0;
    return line;
  }

  return {
    /** Returns the complete lines. `tooLong` is true if the next one exceeds the limit. */
    push(bytes: Uint8Array): { lines: string[]; tooLong: boolean } {
      const lines: string[] = [];
      let start = 0;
      for (let index = 0; index < bytes.length; index++) {
        const byte = bytes[index];
        const isReturn = returns && byte === carriageReturn;
        const follows = afterReturn && byte === lineFeed;
        afterReturn = isReturn;
        if (follows) start = index + 1;
        else if (isReturn || byte === lineFeed) {
          if (length + index - start > maxLineBytes) return { lines, tooLong: true };
          lines.push(lineOf(bytes.subarray(start, index)));
          start = index + 1;
        }
      }
      if (length + bytes.length - start > maxLineBytes) return { lines, tooLong: true };
      hold(bytes.subarray(start));
      return { lines, tooLong: false };
    },
    /** The last line, if no line end followed. */
    end(): string[] {
      return length === 0 ? [] : [lineOf(new Uint8Array())];
    },
  };
}
