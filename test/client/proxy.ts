import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A way to a server that can be cut, closed and held up, as networks are. */
export type Proxy = {
  readonly url: string;
  /** Where it leads. */
  target: string;
  /** Cuts every connection without a word. */
  cut(): void;
  /** Whether new connections come through. */
  isUp: boolean;
  /** Whether clients get what the server sends. */
  isHeldUp: boolean;
  close(): void;
};

export async function startProxy(target: string): Promise<Proxy> {
  const pairs = new Set<{ near: Socket; far: Socket }>();
  let isHeldUp = false;
  const server = createServer((near) => {
    if (!proxy.isUp) return near.destroy();
    const { hostname, port } = new URL(proxy.target);
    const far = connect(Number(port), hostname);
    const pair = { near, far };
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    near.on("error", end).on("close", end).pipe(far);
    far.on("error", end).on("close", end).pipe(near);
    if (isHeldUp) far.pause();
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const proxy: Proxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    target,
    isUp: true,
    cut() {
      for (const { near, far } of pairs) {
        near.destroy();
        far.destroy();
      }
    },
    get isHeldUp() {
      return isHeldUp;
    },
    set isHeldUp(held) {
      isHeldUp = held;
      for (const { near, far } of pairs) {
        if (held) far.unpipe(near).pause();
        else far.pipe(near);
      }
    },
    close() {
      proxy.cut();
      server.close();
    },
  };
  return proxy;
}
