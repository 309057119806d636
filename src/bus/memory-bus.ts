import { type Clock, systemClock } from "../base/clock.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Bus } from "./bus.ts";
import { createEndpoint } from "./endpoint.ts";

/** Connects several pods of one process. */
export type MemoryBus = {
  /** Replaces an earlier connection of this address, which receives nothing any more. */
  connect(address: string, options?: { clock?: Clock; log?: Logger }): Bus;
};

/**
 * Delivers one envelope: calls `arrive`, later or at once, or returns `lost`. An envelope that is
 * overtaken arrives together with the one that overtakes it, so that the order holds for any
 * delays.
 */
export type Carry = (
  envelope: { readonly from: string; readonly to: string; readonly text: string },
  arrive: () => void,
) => "lost" | void;

/** Envelopes of one sender to one address that have not arrived yet, in order. */
type Route = { lastSent: number; inFlight: { readonly number: number; readonly text: string }[] };

const atOnce: Carry = (_envelope, arrive) => queueMicrotask(arrive);

/**
 * A bus within one process: for tests, and for simulations, which control the delivery. Envelopes
 * travel as text, so that no object is shared.
 */
export function createMemoryBus({ carry = atOnce }: { carry?: Carry } = {}): MemoryBus {
  const receivers = new Map<string, (from: string, text: string) => void>();
  const routes = new Map<string, Map<string, Route>>();

  const routeBetween = (from: string, to: string): Route => {
    const ofSender = routes.get(from) ?? new Map<string, Route>();
    routes.set(from, ofSender);
    const route = ofSender.get(to) ?? { lastSent: 0, inFlight: [] };
    ofSender.set(to, route);
    return route;
  };

  const post = (from: string, to: string, text: string) => {
    const route = routeBetween(from, to);
    const number = ++route.lastSent;
    const envelope = { number, text };
    route.inFlight.push(envelope);
    const arrive = () => {
      while (route.inFlight.length > 0 && route.inFlight[0]!.number <= number) {
        const next = route.inFlight.shift()!;
        receivers.get(to)?.(from, next.text);
      }
    };
    if (carry({ from, to, text }, arrive) !== "lost") return;
    route.inFlight = route.inFlight.filter((each) => each !== envelope);
  };

  return {
    connect(address, { clock = systemClock, log = silentLogger } = {}) {
      const endpoint = createEndpoint({
        address,
        clock,
        log,
        transmit: (to, text) => post(address, to, text),
      });
      const { receive, refuse: _, ...rest } = endpoint;
      receivers.set(address, receive);
      return {
        ...rest,
        async close() {
          endpoint.close();
          if (receivers.get(address) !== receive) return;
          receivers.delete(address);
          routes.delete(address);
        },
      };
    },
  };
}
