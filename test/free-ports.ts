import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * Below the ports that systems give to connections and to servers that ask for any: one of those
 * could be given to another process before the server that it was found for listens on it.
 */
const lowest = 11_000;
const highest = 32_000;

/** The first of so many ports in a row that nothing on the loopback listens on. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = randomInt(lowest, highest - count);
    const ports = Array.from({ length: count }, (_, nth) => first + nth);
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return first;
  }
}

export const freePort = (): Promise<number> => freePorts(1);

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    await once(probe.listen(port, "127.0.0.1"), "listening");
    return true;
  } catch {
    return false;
  } finally {
    probe.close();
  }
}
