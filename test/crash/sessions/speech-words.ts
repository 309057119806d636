/** How many words the speech has. */
export const speechWords = 200;
/** How many of them the first attempts say. */
export const wordsByAttempt = [150, 20];
