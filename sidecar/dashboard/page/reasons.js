// Failed jobs, grouped by why they failed.

import { request } from './acts.js';
import { make, moment, number } from './draw.js';

export class Reasons {
  // `heading` is the element of the title. With `show`, each reason that has an HTTP status has a button, which calls show(status).
  constructor(title, { heading = 'h3', show = null } = {}) {
    this.show = show;
    this.element = make('div', 'reasons');
    this.title = make(heading, '', title);
    this.list = make('ul');
    this.element.append(this.title, this.list);
    this.element.hidden = true;
  }

  // Loads the reasons of the jobs that match the filter.
  async collect(filter) {
    const asked = (this.asked = {});
    const { state, ...others } = filter;
    const found =
      state && state !== 'failed'
        ? { reasons: [], jobs: 0 }
        : await request(
            'GET',
            `/v1/jobs/bulk/reasons?${new URLSearchParams(others)}`,
          );
    if (asked === this.asked) this.draw(found);
  }

  draw({ reasons }) {
    const key = JSON.stringify(reasons);
    this.element.hidden = !reasons.length;
    // A button that is about to be pressed stays where it is.
    if (key === this.known || this.list.contains(document.activeElement))
      return;
    this.known = key;
    this.list.replaceChildren(
      ...reasons.map(({ status, error, jobs, last_at: last }) => {
        const item = make('li'),
          text = make('span', 'error', error || `HTTP ${status}`);
        item.append(
          make('strong', '', number(jobs)),
          text,
          make('span', 'hint', `last ${moment(Date.parse(last))}`),
        );
        if (this.show && status != null) {
          const button = make('button', '', 'Show');
          button.type = 'button';
          button.setAttribute('aria-label', `Show those with HTTP ${status}`);
          button.addEventListener('click', () => this.show(String(status)));
          item.append(button);
        }
        return item;
      }),
    );
  }
}
