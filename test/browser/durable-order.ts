/** What the clerk is told to do. */
export type Order = {
  readonly chat: string;
  /** The place at which it goes no further until the test lets it. */
  readonly holds?: string;
  /** The word of its last call behind which the first attempt says no more. */
  readonly pausesAt?: number;
  readonly interrupted?: string;
};

export const firstWords = "First I look at the weather. ";
export const secondWords = "Then I book the seats. ";
export const lastCount = 450;
export const wordMs = 15;

/** The words of the last call, with the attempt that says them. */
export function lastWords(attempt: number): string[] {
  return Array.from({ length: lastCount }, (_, at) => `${attempt}-${at + 1} `);
}
