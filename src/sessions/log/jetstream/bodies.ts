import { FlotillaError } from "../../../base/errors.ts";
import { encodedMark, type StoredText } from "../../../store/codec/codec.ts";

/**
 * The bodies of messages as a stream has them: encoded by the codec of the store, where there is one. The
 * hash of a message is over these bytes, so that streams can be compared without the codec.
 */
export type Bodies = {
  /**
   * The body of a message. One that is sent again has the bytes that it was first sent with: a codec may give
   * others each time, and either send may be the one that is stored.
   */
  bodyOf(logId: number, recordId: string, encode: () => Uint8Array): Uint8Array;
  /** What a body holds. Throws where the codec that wrote it is missing. */
  opened(body: Uint8Array): Uint8Array;
};

const markByte = encodedMark.charCodeAt(0);

export function createBodies(text: StoredText | undefined): Bodies {
  /** The last message of each log. One is in flight at a time. */
  const last = new Map<number, { readonly recordId: string; readonly body: Uint8Array }>();
  return {
    bodyOf(logId, recordId, encode) {
      const sent = last.get(logId);
      if (sent?.recordId === recordId) return sent.body;
      const plain = encode();
      const body = text ? Buffer.from(text.encode(Buffer.from(plain).toString())) : plain;
      last.set(logId, { recordId, body });
      return body;
    },
    opened(body) {
      // Bodies are JSON, which never begins with the mark.
      if (body[0] !== markByte) return body;
      const stored = Buffer.from(body).toString();
      const plain = text?.decode(stored) ?? stored;
      if (!plain.startsWith(encodedMark)) return Buffer.from(plain);
      throw new FlotillaError(
        "codec_failed",
        "it can't be decoded: configure the codec that wrote it, with all keys that were in use",
      );
    },
  };
}
