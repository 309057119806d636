import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Passes connections on to a server, and cuts them when it is told to. */
export async function startCuttingProxy(url: string) {
  const { port, hostname } = new URL(url);
  const sockets = new Set<Socket>();
  const proxy = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    const close = () => {
      client.destroy();
      upstream.destroy();
      sockets.delete(client);
    };
    sockets.add(client);
    for (const each of [client, upstream]) each.on("close", close).on("error", close);
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    get open() {
      return sockets.size;
    },
    cut() {
      for (const each of sockets) each.destroy();
    },
    async [Symbol.asyncDispose]() {
      this.cut();
      await new Promise((resolve) => proxy.close(resolve));
    },
  };
}
