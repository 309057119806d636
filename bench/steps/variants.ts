import { type FlowVariant, flowVariants } from "../flows/variants.ts";

const ours = {
  key: "flotilla",
  system: "steps",
  about: "a task with ten steps; slots: 1,250; to hold 10,000 tasks, slots: 12,500",
  settings: { slots: 1_250 },
  holding: { slots: 12_500 },
} as const;

/** The flows of the same run, whose transitions are stored by the same writes. */
const flowsOf = (store: keyof typeof flowVariants): FlowVariant => ({
  ...flowVariants[store].find(({ key }) => key === "flotilla")!,
  key: "flows",
});

const others = flowVariants.postgres.filter(({ key }) => key !== "flotilla");

/** Absurd takes part where its schema is given. */
export function stepVariants(absurd: string | undefined): Record<string, readonly FlowVariant[]> {
  const withSchema: FlowVariant = {
    key: "absurd",
    system: "absurd",
    place: "postgres",
    about: "20 connections, 1,000 tasks at once, polls every 10 ms",
    settings: { schema: absurd },
    package: "absurd-sdk",
  };
  return {
    postgres: [
      { ...ours, place: "postgres" },
      flowsOf("postgres"),
      ...others,
      ...(absurd === undefined ? [] : [withSchema]),
    ],
    sqlite: [
      { ...ours, place: "sqlite" },
      flowsOf("sqlite"),
      ...flowVariants.sqlite.filter(({ key }) => key !== "flotilla"),
    ],
  };
}

export const stepKeys = [
  ...new Set(Object.values(stepVariants("")).flatMap((those) => those.map(({ key }) => key))),
];
