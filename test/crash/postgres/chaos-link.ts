import type { Socket } from "node:net";
import { endsIdle } from "./frames.ts";

/**
 * What becomes of bytes in one direction.
 * - `pass`: they go through.
 * - `stall`: they wait, unread, and go through once this is over.
 * - `drop`: they are read and forgotten. What was dropped never comes, so the connection is lost.
 */
export type Flow = "pass" | "stall" | "drop";

export type Direction = "toServer" | "toClient";

export type Link = {
  flow(flows: Readonly<Record<Direction, Flow>>, how?: { forGood: boolean }): void;
  cut(midFrame?: Direction): void;
  loseAnswer(done: () => void): void;
  /** Keeps what goes this way from now on, until it is let go. */
  hold(way: Direction): () => void;
};

/** One client's connection and the one that was made for it. */
export function linkOf(
  client: Socket,
  server: Socket,
  initially: Readonly<Record<Direction, Flow>>,
  { onBytes, onGone }: { onBytes: (way: Direction, chunk: Buffer) => void; onGone: () => void },
): Link {
  let flows = { ...initially };
  let forGood = false;
  let cutIn: Direction | undefined;
  let onAnswerLost: (() => void) | undefined;
  const held: Partial<Record<Direction, Buffer[]>> = {};
  const ends = { toServer: { from: client, to: server }, toClient: { from: server, to: client } };

  const cut = () => {
    client.resetAndDestroy();
    server.destroy();
    onGone();
  };
  const heed = () => {
    for (const way of directions) {
      if (flows[way] === "stall") ends[way].from.pause();
      else ends[way].from.resume();
    }
  };
  for (const way of directions) {
    const { from, to } = ends[way];
    from.setNoDelay(true);
    from.on("data", (chunk: Buffer) => {
      onBytes(way, chunk);
      if (way === "toClient" && onAnswerLost) {
        if (!endsIdle(chunk)) return;
        onAnswerLost();
        return cut();
      }
      if (cutIn === way) {
        // Both are closed in an orderly way, or the half that was sent might not arrive.
        to.end(chunk.subarray(0, Math.floor(chunk.length / 2)));
        from.end();
        return onGone();
      }
      if (held[way]) held[way].push(chunk);
      else if (flows[way] === "pass" && !to.destroyed) to.write(chunk);
    });
    from.on("error", () => {});
    // Where bytes are dropped the ends are too, and the other side waits for ever.
    from.on("end", () => {
      if (flows[way] === "pass" && !held[way]) to.end();
    });
    from.on("close", () => {
      // What is held back isn't there for the other side yet, not even the end.
      if (flows[way] !== "drop" && !held[way]) to.destroySoon();
      if (client.destroyed && server.destroyed) onGone();
    });
  }
  heed();
  return {
    flow(next, how) {
      if (forGood) return;
      forGood = how?.forGood ?? false;
      flows = { ...next };
      heed();
    },
    cut(midFrame) {
      if (midFrame) cutIn = midFrame;
      else cut();
    },
    loseAnswer(done) {
      onAnswerLost = done;
    },
    hold(way) {
      held[way] = [];
      return () => {
        const chunks = held[way] ?? [];
        delete held[way];
        if (!ends[way].to.destroyed) for (const chunk of chunks) ends[way].to.write(chunk);
      };
    },
  };
}

const directions: readonly Direction[] = ["toServer", "toClient"];
