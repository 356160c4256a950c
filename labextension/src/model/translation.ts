import { nullTranslator } from '@jupyterlab/translation';
import type { ITranslator } from '@jupyterlab/translation';

/** The domain of this extension's words in language packs. */
const DOMAIN = 'hpu_magic';

let bundle = nullTranslator.load(DOMAIN);

/** Have all words come from `translator`; called before any view is made. */
export function setTranslator(translator: ITranslator): void {
  bundle = translator.load(DOMAIN);
}

/**
 * Words in the user's language, under the names by which JupyterLab's tools find them in sources.
 * `%1`, `%2` … stand for the values; of a plural, `%1` is the number.
 */
export const trans = {
  __: (message: string, ...values: (string | number)[]): string => bundle.__(message, ...values),
  _n: (one: string, many: string, count: number, ...values: (string | number)[]): string =>
    bundle._n(one, many, count, ...values)
};
