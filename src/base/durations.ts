export const dayMs = 24 * 60 * 60_000;
/** The longest possible delay: a leap year. */
export const yearMs = 366 * 24 * 60 * 60_000;
