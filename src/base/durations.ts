export const dayMs = 24 * 60 * 60_000;
/** The longest that anything can be put off: a leap year. */
export const yearMs = 366 * 24 * 60 * 60_000;
