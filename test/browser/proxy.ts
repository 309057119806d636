import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A network between browsers and the server, which can be cut. */
export type Proxy = {
  readonly port: number;
  /** How many connections were cut that were in use. */
  readonly cuts: number;
  /** Ends every connection as a network does that is gone: without a word. */
  cut(): void;
  /** Cuts by itself the connection that brings so many more bytes to a browser, if any does. */
  cutAfter(bytes: number): void;
  /** From now on no connection gets through, or all do. */
  block(isBlocked: boolean): void;
  close(): Promise<void>;
};

export async function startProxy(toPort: () => number): Promise<Proxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let isBlocked = false;
  let cuts = 0;
  let bytesLeft = Infinity;

  const end = (pair: readonly [Socket, Socket]): void => {
    if (!pairs.delete(pair)) return;
    for (const socket of pair) socket.resetAndDestroy();
  };
  const server = createServer((browser) => {
    if (isBlocked) return void browser.resetAndDestroy();
    const pair = [browser, connect(toPort(), "127.0.0.1")] as const;
    const [, upstream] = pair;
    pairs.add(pair);
    for (const socket of pair) {
      socket.setNoDelay(true);
      socket.on("error", () => end(pair));
      socket.on("close", () => end(pair));
    }
    browser.pipe(upstream);
    upstream.on("data", (data: Buffer) => {
      // In the middle of a frame as well as between two.
      if (data.length <= bytesLeft) {
        bytesLeft -= data.length;
        if (!browser.write(data)) {
          upstream.pause();
          browser.once("drain", () => upstream.resume());
        }
        return;
      }
      bytesLeft = Infinity;
      cuts++;
      browser.write(data.subarray(0, data.length >> 1), () => end(pair));
    });
    upstream.on("end", () => browser.end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  const cut = (): void => {
    for (const pair of pairs) {
      cuts++;
      end(pair);
    }
  };
  return {
    port: (server.address() as AddressInfo).port,
    get cuts() {
      return cuts;
    },
    cut,
    cutAfter(bytes) {
      bytesLeft = bytes;
    },
    block(blocked) {
      isBlocked = blocked;
      if (blocked) cut();
    },
    async close() {
      for (const pair of pairs) end(pair);
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
