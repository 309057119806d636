import { type Clock, systemClock } from "../base/clock.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Bus } from "./bus.ts";
import { createEndpoint } from "./endpoint.ts";

/** Where several pods of one process write to each other. */
export type MemoryBus = {
  /** Whoever connected under this address before gets no more letters. */
  connect(address: string, options?: { clock?: Clock; log?: Logger }): Bus;
};

/**
 * Brings one letter there: calls `arrive`, later or at once, or says that it is lost. A letter that is
 * overtaken comes along with the one that overtakes it, so that order holds whatever the delays are.
 */
export type Carry = (
  envelope: { readonly from: string; readonly to: string; readonly text: string },
  arrive: () => void,
) => "lost" | void;

const atOnce: Carry = (_letter, arrive) => queueMicrotask(arrive);

/**
 * Letters within one process: for tests, and for simulations, which carry them as they please. They
 * travel as text, so that nobody shares an object with anybody.
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
      const { receive, ...rest } = endpoint;
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

/** Letters of one sender to one address that haven't arrived yet, in order. */
type Route = { lastSent: number; inFlight: { readonly number: number; readonly text: string }[] };
