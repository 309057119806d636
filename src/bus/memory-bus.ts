import { type Clock, systemClock } from "../base/clock.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Bus } from "./bus.ts";
import { createDesk } from "./endpoint.ts";

/** Where several pods of one process write to each other. */
export type LocalExchange = {
  /** Whoever connected under this address before gets no more letters. */
  connect(address: string, options?: { clock?: Clock; log?: Logger }): Bus;
};

/**
 * Brings one letter there: calls `arrive`, later or at once, or says that it is lost. A letter that is
 * overtaken comes along with the one that overtakes it, so that order holds whatever the delays are.
 */
export type Carry = (
  letter: { readonly from: string; readonly to: string; readonly text: string },
  arrive: () => void,
) => "lost" | void;

const atOnce: Carry = (_letter, arrive) => queueMicrotask(arrive);

/**
 * Letters within one process: for tests, and for simulations, which carry them as they please. They
 * travel as text, so that nobody shares an object with anybody.
 */
export function createLocalExchange({ carry = atOnce }: { carry?: Carry } = {}): LocalExchange {
  const receivers = new Map<string, (from: string, text: string) => void>();
  const ways = new Map<string, Map<string, Way>>();

  const wayBetween = (from: string, to: string): Way => {
    const ofSender = ways.get(from) ?? new Map<string, Way>();
    ways.set(from, ofSender);
    const way = ofSender.get(to) ?? { lastSent: 0, underWay: [] };
    ofSender.set(to, way);
    return way;
  };

  const post = (from: string, to: string, text: string) => {
    const way = wayBetween(from, to);
    const number = ++way.lastSent;
    const letter = { number, text };
    way.underWay.push(letter);
    const arrive = () => {
      while (way.underWay.length > 0 && way.underWay[0]!.number <= number) {
        const next = way.underWay.shift()!;
        receivers.get(to)?.(from, next.text);
      }
    };
    if (carry({ from, to, text }, arrive) !== "lost") return;
    way.underWay = way.underWay.filter((each) => each !== letter);
  };

  return {
    connect(address, { clock = systemClock, log = silentLogger } = {}) {
      const desk = createDesk({
        address,
        clock,
        log,
        post: (to, text) => post(address, to, text),
      });
      const { receive, ...rest } = desk;
      receivers.set(address, receive);
      return {
        ...rest,
        async close() {
          desk.close();
          if (receivers.get(address) !== receive) return;
          receivers.delete(address);
          ways.delete(address);
        },
      };
    },
  };
}

/** Letters of one sender to one address that haven't arrived yet, in order. */
type Way = { lastSent: number; underWay: { readonly number: number; readonly text: string }[] };
