/**
 * What callers are in the middle of sending, bodies of requests and messages of sockets, over all of them:
 * each may be large, and may come as slowly as its caller likes. Where they take too much, the one that has
 * been coming the longest is ended, of which nothing was done yet.
 */
export type IncomingBodies = {
  /** On a connection, with what ends it. */
  open(cut: () => void): IncomingBody;
};

export type IncomingBody = {
  /** So many bytes more have come, or less than was thought. */
  add(bytes: number): void;
  /** All of it is there, or it isn't wanted any more. Another may follow. */
  end(): void;
};

// Far more than callers that send what they have are in the middle of.
export const defaultMaxBodyBytes = 256 * 1024 * 1024;

export function createIncomingBodies(maxBytes = defaultMaxBodyBytes): IncomingBodies {
  /** In the order in which they began. */
  const arriving = new Set<{ bytes: number; cut(): void }>();
  let allBytes = 0;

  return {
    open(cut) {
      const end = () => {
        if (arriving.delete(body)) allBytes -= body.bytes;
        body.bytes = 0;
      };
      const body = {
        bytes: 0,
        cut() {
          end();
          cut();
        },
      };
      return {
        add(bytes) {
          if (body.bytes + bytes <= 0) return end();
          arriving.add(body);
          body.bytes += bytes;
          allBytes += bytes;
          // One alone has its own limit.
          for (const oldest of arriving) {
            if (allBytes <= maxBytes || arriving.size === 1) return;
            oldest.cut();
          }
        },
        end,
      };
    },
  };
}
