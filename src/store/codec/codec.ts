import { FlotillaError, messageOf } from "../../base/errors.ts";

/**
 * Turns what users put in into what is stored, and back. Both functions are called for each value, on the
 * event loop: they must be quick, and can't wait. `decode` is given what `encode` has returned, now or in
 * an earlier release of the program.
 */
export type PayloadCodec = {
  encode(text: string): string;
  decode(stored: string): string;
};

export function checkCodec(codec: unknown): void {
  const { encode, decode } = (codec ?? {}) as Partial<PayloadCodec>;
  if (typeof encode === "function" && typeof decode === "function") return;
  throw new FlotillaError(
    "invalid_option",
    "codec must have the functions `encode` and `decode`, as `encryption({ keys })` returns them",
  );
}

/** Encodes and decodes text as it is in the store. */
export type StoredText = {
  encode(text: string): string;
  /** Text without a mark is returned as it is, and so is what can't be decoded. */
  decode(stored: string): string;
};

// All content is JSON, which never begins with this. So a value without it is plain: it was stored without
// a codec, or by hand.
export const encodedMark = "~";

export function isEncoded(stored: string): boolean {
  return stored.startsWith(encodedMark);
}

/**
 * What can't be decoded stays as it is, so that one value fails no page of others. `onFailure` is called
 * with the reason, which holds nothing of the value.
 */
export function storedText(codec: PayloadCodec, onFailure: (reason: string) => void): StoredText {
  return {
    encode(text) {
      let encoded: unknown;
      try {
        encoded = codec.encode(text);
      } catch (error) {
        throw codecFailed("encode", messageOf(error, 200), error);
      }
      if (typeof encoded === "string") return encodedMark + encoded;
      throw codecFailed("encode", `it returned ${typeof encoded} instead of text`);
    },
    decode(stored) {
      if (!isEncoded(stored)) return stored;
      try {
        const text: unknown = codec.decode(stored.slice(encodedMark.length));
        if (typeof text === "string") return text;
        onFailure(`it returned ${typeof text} instead of text`);
      } catch (error) {
        onFailure(messageOf(error, 200));
      }
      return stored;
    },
  };
}

/** Reads stored JSON. Says so where the codec that wrote it is missing. */
export function parseStored(stored: string): unknown {
  if (!isEncoded(stored)) return JSON.parse(stored);
  throw new FlotillaError(
    "codec_failed",
    "a stored value can't be decoded: configure the codec that wrote it, with all keys that were in use",
  );
}

function codecFailed(what: string, reason: string, cause?: unknown): FlotillaError {
  return new FlotillaError("codec_failed", `the codec can't ${what} a value: ${reason}`, { cause });
}
