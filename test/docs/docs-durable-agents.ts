import type { LanguageModel } from "ai";

export { generateText } from "ai";
export declare const model: Exclude<LanguageModel, string>;
export declare const studio: { render(scene: string): Promise<{ url: string }> };
export declare const shop: {
  order(item: string, options: { idempotencyKey: string }): Promise<{ order: string }>;
};
