/** Any value that JSON can carry. */
export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json | undefined };

/** What is left of a type after a trip through JSON: a `Date` comes back as a string. */
export type Jsonify<T> = [Json] extends [T]
  ? Json
  : T extends string | number | boolean | null
    ? T
    : T extends { toJSON(): infer Written }
      ? Jsonify<Written>
      : T extends undefined | void
        ? null
        : T extends (...args: never[]) => unknown
          ? never
          : T extends readonly unknown[]
            ? { [Index in keyof T]: Jsonify<T[Index]> }
            : T extends object
              ? { [Key in keyof T as T[Key] extends Dropped ? never : Key]: JsonifyField<T[Key]> }
              : never;

type Dropped = symbol | ((...args: never[]) => unknown);

// A missing field stays missing, where a bare `undefined` becomes null.
type JsonifyField<T> = T extends undefined ? undefined : Jsonify<T>;
