/**
 * Bodies of requests and messages of sockets that are still arriving, over all callers: each may be
 * large, and may arrive as slowly as its caller likes. Where they take too much memory, the oldest is
 * ended; nothing was done for it yet.
 */
export type IncomingBodies = {
  /** `cut` ends the connection that the body arrives on. */
  open(cut: () => void): IncomingBody;
};

export type IncomingBody = {
  /** Counts so many bytes more; negative where fewer are held than were counted. */
  add(bytes: number): void;
  /** The body is complete or not wanted any more. Another may follow on the same connection. */
  end(): void;
};

// Far more than well-behaved callers have in flight.
export const defaultMaxBodyBytes = 256 * 1024 * 1024;

export function createIncomingBodies(maxBytes = defaultMaxBodyBytes): IncomingBodies {
  /** Oldest first. */
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
          // A single body has a limit of its own.
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
