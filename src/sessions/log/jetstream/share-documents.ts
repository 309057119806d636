import { throttleHash } from "../../../throttles/shares/demands.ts";
import type { ShareDocuments } from "../../../throttles/shares/documents.ts";
import type { StreamEngine } from "./engine.ts";
import { type Deployment, shareStreamName, shareSubject } from "./streams.ts";

/** Messages to all processes that listen, this one among them. They may be lost. */
export type ShareTalk = Pick<ShareDocuments, "announce" | "onAnnounced">;

const publishLimitMs = 1_000;

/**
 * Documents of shares as the last messages of subjects. A write has the sequence that it replaces as its
 * condition and is sent once. Only an ack says that it is stored, and only a limit of the servers that it isn't:
 * whatever else is answered may be about a message that is on its way.
 */
export function createShareDocuments({
  engine,
  deployment,
  talk,
}: {
  engine: Pick<StreamEngine, "publish" | "lastOn">;
  deployment: Deployment;
  talk: ShareTalk;
}): ShareDocuments {
  const stream = shareStreamName(deployment);
  return {
    ...talk,
    async read(id) {
      const found = await engine.lastOn(stream, shareSubject(deployment, throttleHash(id)));
      return found && { rev: found.sequence, text: new TextDecoder().decode(found.body) };
    },
    async write(id, rev, text) {
      const subject = shareSubject(deployment, throttleHash(id));
      const message = { subject, headers: {}, body: new TextEncoder().encode(text) };
      const condition = {
        stream,
        lastSequence: rev,
        of: "subject",
        limitMs: publishLimitMs,
      } as const;
      const answer = await engine.publish(message, condition);
      switch (answer.type) {
        case "acked":
          return answer.stream === stream && answer.sequence > rev
            ? { type: "stored", rev: answer.sequence }
            : { type: "unknown", why: `it was acked as ${answer.sequence} of ${answer.stream}` };
        case "full":
        case "too_large":
          return { type: "refused", why: `the stream ${stream} takes no more: ${answer.type}` };
        case "wrong_last":
          return { type: "unknown", why: "another write is stored, or on its way" };
        case "silent":
          return { type: "unknown", why: answer.why };
      }
    },
  };
}
