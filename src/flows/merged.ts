import type { Jsonify } from "../base/json.ts";
import type { HandedOff } from "./decide/handoff.ts";

/** The state after a transition: what it returned, as JSON, over what was there. */
export type Merged<State, Returned> = [Kept<Returned>] extends [never]
  ? State
  : Over<State, Returns<Returned> extends true ? Jsonify<Kept<Returned>> : Maybe<Kept<Returned>>>;

/** What its transitions have handed off, where nothing else says what the output is. */
export type HandedBy<Returned> = Returned extends HandedOff<infer Output> ? Jsonify<Output> : never;

type Nothing = void | undefined | null;
type Kept<Returned> = Exclude<Returned, Nothing | HandedOff<any>>;
type Returns<Returned> = [Extract<Returned, Nothing>] extends [never] ? true : false;
// It may return nothing, and then nothing of it is there.
type Maybe<Each> = Each extends unknown ? Partial<Jsonify<Each>> : never;

type Over<State, Added> = Added extends unknown
  ? State extends unknown
    ? Flat<{ [Key in Exclude<keyof State, keyof Added>]: State[Key] } & Replaced<State, Added>>
    : never
  : never;

/** A field that may be undefined isn't stored then, and what was there stays. */
type Replaced<State, Added> = {
  [Key in keyof Added]: undefined extends Added[Key]
    ? Key extends keyof State
      ? State[Key] | Exclude<Added[Key], undefined>
      : Added[Key]
    : Added[Key];
};

/** Shown as one object, in messages and when you point at it. */
export type Flat<Each> = { [Key in keyof Each]: Each[Key] };
