import { greeting, type Greeting } from './greeting'

const show = (g: Greeting) => { document.querySelector('#greeting')!.textContent = g.text }
show(greeting)

import.meta.hot?.accept('./greeting', changed => show(changed!.greeting))
